"""Custom resources: CustomResourceDefinitions become served resources, in all their versions."""
