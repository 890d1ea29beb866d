-- How many rows of the shop's tables were written since the server started, by kind.
SELECT
    sum(n_tup_ins)::bigint AS inserted,
    sum(n_tup_upd)::bigint AS updated,
    sum(n_tup_del)::bigint AS deleted
FROM pg_stat_user_tables
WHERE schemaname = 'shop'
