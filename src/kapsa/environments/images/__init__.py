"""Images: registries, the credentials for them (`registry_access`), and the deletion of images nothing runs (`retention`)."""
