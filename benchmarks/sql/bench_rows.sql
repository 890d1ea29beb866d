-- The same rows in every run. One note in a hundred is not plain ASCII, as in life.
INSERT INTO bench
SELECT id,
       id * 7919 %% 100000,
       (ARRAY['new', 'paid', 'shipped', 'returned', 'cancelled'])[1 + id %% 5],
       (id * 104729 %% 1000000000)::numeric / 100,
       sqrt(id) * 1.1,
       timestamptz '2020-01-01 00:00:00Z' + id * interval '37.123457 seconds',
       date '2020-01-01' + (id %% 2000)::integer,
       id %% 3 = 0,
       CASE WHEN id %% 100 = 0 THEN 'Straße ' ELSE 'order ' END || id || ': '
           || substr('please leave the parcel with the neighbour on the left', 1, 30 + (id %% 25)::integer),
       md5(id::text)::uuid,
       CASE WHEN id %% 3 = 0 THEN NULL ELSE 'tag' || id %% 50 || ',tag' || id %% 70 END
FROM generate_series(1, %(rows)s::bigint) AS id
