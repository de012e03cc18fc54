"""Images: access to registries (`registry_access`), and the deletion of unused images (`retention`)."""
