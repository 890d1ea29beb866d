SELECT p.oid::int8 AS oid, p.puballtables AS all_tables, p.pubviaroot AS via_root,
       p.pubinsert AS inserts, p.pubupdate AS updates, p.pubdelete AS deletes, p.pubtruncate AS truncates
FROM pg_catalog.pg_publication p
WHERE p.pubname = %(publication)s
