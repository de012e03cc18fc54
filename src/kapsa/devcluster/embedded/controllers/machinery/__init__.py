"""The machinery of controllers: queues, the view of the store, plans and their execution."""
