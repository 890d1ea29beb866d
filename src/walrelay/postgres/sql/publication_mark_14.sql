-- What a publication is made of, by the transactions that wrote it.
SELECT (p.oid::text || ':' || p.xmin::text) || ' '
       || coalesce((SELECT string_agg(r.oid::text || ':' || r.xmin::text, ' ' ORDER BY r.oid)
                    FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = p.oid), '') AS mark
FROM pg_catalog.pg_publication p
WHERE p.pubname = %(publication)s
