"""Images: the credentials for registries (`registry_access`), and the deletion of images nothing runs (`retention`)."""
