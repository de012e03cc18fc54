"""Custom resources: CustomResourceDefinitions and what they make the server serve."""
