"""Reading: lists, watches, selectors, and the form a reply takes."""
