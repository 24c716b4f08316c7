"""A plan as a document: versioned, with a schema, for people and programs."""
