"""The language itself: `syntax`, `parser` with its `macros`, and `types`."""
