"""Looking after a store.

What it holds (`inventory`), whether it is whole (`verification`), what can be freed (`freeing`), how steps travel (`exporting`,
`importing`, and the file between them: `archive`), ad hoc questions (`sql`), and results that come with the package
(`replication`).
"""
