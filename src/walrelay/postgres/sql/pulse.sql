-- One word for all of the catalog that the published tables depend on: the same as at the last look when nobody has
-- altered anything. Cheap, since it is asked for every other second.
WITH relations AS (
    SELECT t.id FROM unnest(%(tables)s::oid[]) AS t(id)
  UNION
    SELECT tree.relid::oid
    FROM unnest(%(tables)s::oid[]) AS t(id)
    JOIN pg_catalog.pg_class c ON c.oid = t.id AND c.relkind = 'p'
    CROSS JOIN LATERAL pg_catalog.pg_partition_tree(c.oid::regclass) AS tree
), marks(mark) AS (
    SELECT format('p%%s:%%s', p.oid, p.xmin) FROM pg_catalog.pg_publication p WHERE p.pubname = %(publication)s
  UNION ALL
    SELECT format('r%%s:%%s', r.oid, r.xmin)
    FROM pg_catalog.pg_publication_rel r
    JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid AND p.pubname = %(publication)s
  UNION ALL
    SELECT format('c%%s:%%s:%%s', c.oid, c.xmin, c.relfilenode)
    FROM pg_catalog.pg_class c JOIN relations ON relations.id = c.oid
  UNION ALL
    SELECT format('a%%s:%%s', a.attrelid, string_agg(format('%%s:%%s', a.attnum, a.xmin), ',' ORDER BY a.attnum))
    FROM pg_catalog.pg_attribute a JOIN relations ON relations.id = a.attrelid
    WHERE a.attnum > 0 GROUP BY a.attrelid
  UNION ALL
    SELECT format('d%%s:%%s', d.oid, d.xmin) FROM pg_catalog.pg_attrdef d JOIN relations ON relations.id = d.adrelid
  UNION ALL
    SELECT format('i%%s:%%s', i.inhrelid, i.xmin) FROM pg_catalog.pg_inherits i JOIN relations ON relations.id = i.inhrelid
  UNION ALL
    SELECT format('k%%s:%%s', i.indexrelid, i.xmin) FROM pg_catalog.pg_index i JOIN relations ON relations.id = i.indrelid
  UNION ALL
    SELECT format('e%%s:%%s', e.oid, e.xmin) FROM pg_catalog.pg_enum e
  UNION ALL
    SELECT format('t%%s:%%s:%%s', a.attrelid, a.attnum, a.xmin)
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid AND c.relkind = 'c'
    WHERE a.attnum > 0
  UNION ALL
    SELECT format('n%%s:%%s:%%s', d.objid, d.refobjid, d.xmin)
    FROM pg_catalog.pg_depend d JOIN relations ON relations.id = d.objid
    WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = 'pg_catalog.pg_namespace'::regclass
  UNION ALL
    -- The schemas that a publication names, from 15 on.
    SELECT format('s%%s:%%s', d.objid, d.xmin) FROM pg_catalog.pg_depend d
    WHERE d.classid = to_regclass('pg_catalog.pg_publication_namespace')
  UNION ALL
    SELECT format('v%%s:%%s', t.oid, t.xmin) FROM pg_catalog.pg_event_trigger t WHERE t.evtname LIKE 'walrelay%%'
)
SELECT md5(string_agg(mark, ',' ORDER BY mark)) AS pulse FROM marks
