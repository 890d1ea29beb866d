SELECT data, changes
FROM (
    SELECT data, count(*) OVER () AS changes
    FROM pg_catalog.pg_logical_slot_peek_binary_changes(
        %(slot)s, NULL, %(most)s, 'proto_version', '1', 'publication_names', quote_ident(%(publication)s)
    )
) AS waiting
WHERE get_byte(data, 0) = 67
