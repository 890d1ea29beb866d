-- Fills the shop with about `shop.rows` rows (a setting). Every value comes from the row's number, so that each run
-- makes the same shop.
SET search_path = shop, public;
SET timezone = 'UTC';
SET work_mem = '128MB';
SET maintenance_work_mem = '128MB';
SET jit = off;
-- Estimates of row counts are all that anybody asks for.
SET default_statistics_target = 1;

-- A number from 0 up to but not including 1, by row and by purpose.
CREATE FUNCTION pg_temp.draw(row_number bigint, purpose bigint) RETURNS double precision LANGUAGE sql IMMUTABLE
RETURN (hashint8extended(row_number, purpose) & 1073741823) / 1073741824.0::float8;

-- An element, the first ones more often the larger `slant` is (1: all alike).
CREATE FUNCTION pg_temp.one_of(choices text[], row_number bigint, purpose bigint, slant double precision)
RETURNS text LANGUAGE sql IMMUTABLE
RETURN choices[1 + floor(cardinality(choices) * pg_temp.draw(row_number, purpose) ^ slant)::int];

-- So many rows for a table that has this part of all, but not too few for the others to refer to.
CREATE FUNCTION pg_temp.share(part double precision, fewest bigint) RETURNS bigint LANGUAGE sql STABLE
RETURN greatest(fewest, (current_setting('shop.rows')::bigint * part)::bigint);

INSERT INTO customers
SELECT
    g,
    md5('customer ' || g)::uuid,
    lower(unaccented || '.' || g || '@' || pg_temp.one_of('{example.com,example.org,example.net}', g, 1, 1.5)),
    first_name,
    pg_temp.one_of(
        '{Müller,Smith,García,Nowak,Rossi,Øystein,Ivanova,Tanaka,O''Neill,Silva,Šimić,Nguyễn,Kowalski,Dubois,王,Yılmaz}',
        g, 3, 1.2),
    pg_temp.one_of('{bronze,silver,gold}', g, 4, 1.9)::tier,
    CASE WHEN g % 41 <> 0 THEN
        ROW(
            pg_temp.one_of('{Main Street,Rue de la Paix,Lindenstraße,Gran Vía,Via Roma,Kirkegata,Ulica Długa,桜通り}', g, 5, 1)
                || ' ' || 1 + g % 180,
            CASE WHEN g % 7 <> 0 THEN lpad((g * 7919 % 100000)::text, 5, '0') END,
            pg_temp.one_of('{Berlin,Paris,Kraków,Lisboa,München,Oslo,Roma,Zürich,Madrid,Malmö,Brno,東京}', g, 6, 1.3),
            pg_temp.one_of('{DE,FR,PL,PT,DE,NO,IT,CH,ES,SE,CZ,JP}', g, 6, 1.3)
        )::address
    END,
    CASE WHEN g % 11 <> 0 THEN date '1950-01-01' + (20000 * pg_temp.draw(g, 7))::int END,
    CASE WHEN g % 5 = 0
        THEN ('2001:db8::' || to_hex(g % 65536) || ':' || to_hex(g * 31 % 65536))::inet
        ELSE inet '10.0.0.0' + g * 7919 % 16000000
    END,
    CASE g % 4
        WHEN 0 THEN '{}'::text[]
        WHEN 1 THEN ARRAY[pg_temp.one_of('{newsletter,app,returns-a-lot,wholesale,"VIP, by invitation"}', g, 8, 1.4)]
        ELSE ARRAY[
            pg_temp.one_of('{web,app,store}', g, 9, 1.3),
            pg_temp.one_of('{spring,summer,autumn,winter}', g, 10, 1), CASE WHEN g % 97 = 0 THEN NULL ELSE 'loyal' END]
    END,
    jsonb_build_object(
        'language', pg_temp.one_of('{de,en,fr,pl,ja}', g, 11, 1.2), 'dark_mode', g % 3 = 0, 'page_size', 10 * (1 + g % 5)),
    g % 3 <> 1,
    CASE WHEN g % 13 <> 0 THEN (50000 * pg_temp.draw(g, 12) ^ 3)::numeric(12, 2) END,
    timestamptz '2020-01-01' + pg_temp.draw(g, 13) ^ 0.7 * interval '2100 days'
FROM generate_series(1, pg_temp.share(0.05, 20)) AS g
CROSS JOIN LATERAL (
    SELECT g * 7919 % 16 + 1 AS pick
) AS p
CROSS JOIN LATERAL (
    SELECT
        ('{Anna,Jürgen,Chloé,Piotr,Zoë,Łukasz,Sofía,Mehmet,Ingrid,美咲,Håkon,Amélie,Tomáš,Giulia,Liam,Nguyệt}'::text[])[pick]
            AS first_name,
        ('{anna,juergen,chloe,piotr,zoe,lukasz,sofia,mehmet,ingrid,misaki,hakon,amelie,tomas,giulia,liam,nguyet}'::text[])[pick]
            AS unaccented
) AS n;

INSERT INTO products
SELECT
    g,
    'SKU-' || lpad(g::text, 6, '0'),
    name,
    ('shop.' || pg_temp.one_of('{home.kitchen,home.garden,office.desk,outdoor.camping,home.bath}', g, 21, 1))::ltree,
    (2 + 400 * pg_temp.draw(g, 22) ^ 3)::numeric(10, 2),
    CASE WHEN g % 17 <> 0 THEN (0.05 + 20 * pg_temp.draw(g, 23) ^ 2)::real END,
    CASE WHEN g % 9 <> 0 THEN 1 + 4 * pg_temp.draw(g, 24) ^ 0.4 END,
    string_to_array(lower(name), ' '),
    jsonb_build_object(
        'colour', pg_temp.one_of('{red,green,blue,"off-white","très chic"}', g, 25, 1), 'size_cm', ARRAY[g % 80, g % 60, g % 40],
        'organic', CASE WHEN g % 6 <> 0 THEN g % 2 = 0 END),
    CASE WHEN g % 3 = 0 THEN hstore(ARRAY['origin', 'care'], ARRAY[pg_temp.one_of('{EU,JP,US}', g, 26, 1), NULL]) END,
    to_tsvector('simple', name),
    daterange(
        date '2022-01-01' + (g % 900)::int, CASE WHEN g % 4 = 0 THEN date '2026-01-01' + (g % 300)::int END),
    CASE WHEN g % 5 = 0 THEN
        tstzmultirange(
            tstzrange('2025-03-01', '2025-03-08'),
            tstzrange('2025-11-24 00:00+01' , '2025-12-01 00:00+01', '[]'))
    END,
    CASE WHEN g % 2 = 0 THEN '\x89504e470d0a1a0a'::bytea || sha256(convert_to(name || g, 'UTF8')) END,
    CASE WHEN g % 10 <> 0 THEN
        ARRAY[pg_temp.draw(g, 27), pg_temp.draw(g, 28) - 0.5, pg_temp.draw(g, 29), -pg_temp.draw(g, 30)]::real[]::vector
    END
FROM generate_series(1, pg_temp.share(0.004, 20)) AS g
CROSS JOIN LATERAL (
    SELECT
        pg_temp.one_of('{Copper,Oak,Linen,Enamel,Folding,Ceramic,Wool,Bamboo,Cast-iron,Glass,Café,Señorial}', g, 31, 1) || ' '
        || pg_temp.one_of('{kettle,lamp,tent,notebook,blanket,planter,mug,chair,teapot,hammock,clock,basket}', g, 32, 1)
        AS name
) AS n;

INSERT INTO orders
    (customer_id, status, currency, shipping, coupon, gift, placed_at, promised_for, slot_from, delivery_time)
SELECT
    1 + floor(pg_temp.share(0.05, 20) * pg_temp.draw(g, 41) ^ 1.3)::int,
    pg_temp.one_of('{delivered,shipped,paid,placed,cancelled}', g, 42, 2.2)::order_status,
    pg_temp.one_of('{EUR,EUR,CHF,USD,JPY}', g, 43, 1.6),
    (g % 4 * 2.45)::numeric(8, 2),
    CASE WHEN g % 19 = 0 THEN 'SAVE' || 5 * (1 + g % 4) || ' 💶' END,
    g % 23 = 0,
    placed_at,
    CASE WHEN g % 8 <> 0 THEN placed_at::date + 2 + (g % 6)::int END,
    CASE WHEN g % 8 <> 0 THEN time '08:00' + g % 20 * interval '30 minutes' END,
    CASE WHEN g % 6 <> 0 THEN pg_temp.draw(g, 44) * interval '5 days' + g % 3 * interval '1 day' END
FROM generate_series(1, pg_temp.share(0.13, 40)) AS g
CROSS JOIN LATERAL (
    -- The shop grows over its two years, and is busiest at the end of each.
    SELECT sqrt(g::float8 / pg_temp.share(0.13, 40)) AS x
) AS u
CROSS JOIN LATERAL (
    SELECT timestamptz '2024-01-01' + (x - 0.04 * sin(4 * pi() * x)) * interval '730 days' AS placed_at
) AS t;

INSERT INTO order_items
SELECT g, line, p.id, 1 + (g + line) % 4, p.price
FROM generate_series(1, pg_temp.share(0.13, 40)) AS g
CROSS JOIN LATERAL generate_series(1, 1 + g * 7 % 9) AS line
JOIN products AS p ON p.id = 1 + floor(pg_temp.share(0.004, 20) * pg_temp.draw(g * 16 + line, 51) ^ 2)::int;

ALTER TABLE customers ADD PRIMARY KEY (id);
ALTER TABLE products ADD PRIMARY KEY (id);
ALTER TABLE orders ADD PRIMARY KEY (id);
ALTER TABLE order_items ADD PRIMARY KEY (order_id, line);

INSERT INTO payments
SELECT
    row_number() OVER (ORDER BY o.id), o.id, pg_temp.one_of('{card,wallet,invoice,transfer}', o.id, 61, 1.7)::payment_method,
    (o.shipping + i.total)::money, md5('payment ' || o.id)::uuid, o.placed_at + pg_temp.draw(o.id, 62) * interval '3 hours'
FROM orders AS o
JOIN (SELECT order_id, sum(quantity * unit_price) AS total FROM order_items GROUP BY order_id) AS i ON i.order_id = o.id
WHERE o.status NOT IN ('placed', 'cancelled');

INSERT INTO events
SELECT
    g, timestamptz '2025-01-01' + pg_temp.draw(g, 71) * interval '364 days',
    CASE WHEN g % 4 <> 0 THEN 1 + floor(pg_temp.share(0.05, 20) * pg_temp.draw(g, 72))::int END,
    pg_temp.one_of('{view,view,search,basket,sign-in,"sign-out"}', g, 73, 1.2),
    CASE WHEN g % 3 = 0 THEN set_masklen(inet '10.0.0.0' + g * 256 % 16000000, 24)::cidr END,
    jsonb_build_object('page', '/p/' || g % 4000, 'ms', round((900 * pg_temp.draw(g, 74) ^ 4)::numeric, 3), 'ab', ARRAY['x', NULL])
FROM generate_series(1, pg_temp.share(0.06, 40)) AS g;

INSERT INTO searches
SELECT
    timestamp '2025-06-01' + g * interval '7.000001 seconds', pg_temp.one_of('{tee,teapot,tent,Kessel,毛布,"café"}', g, 81, 1.2),
    (300 * pg_temp.draw(g, 82) ^ 3)::int, (40 * pg_temp.draw(g, 83))::real
FROM generate_series(1, pg_temp.share(0.02, 20)) AS g;

INSERT INTO curiosities (id, about, day, moment, instant) VALUES
    (1, 'the end of time', 'infinity', 'infinity', 'infinity'),
    (2, 'the beginning of time', '-infinity', '-infinity', '-infinity'),
    (3, 'long before Postgres', '4713-01-01 BC', '4713-01-01 00:00:00 BC', '0044-03-15 12:00:00+00 BC'),
    (4, 'long after us', '5874897-12-31', '294246-12-31 23:59:59.999999', '20000-01-01 00:00:00+00');
INSERT INTO curiosities (id, about, clock, clock_abroad, span) VALUES
    (5, 'a day has 24 hours', '24:00:00', '24:00:00-15:59', '1 year 2 mons -3 days 04:05:06.789'),
    (6, 'for ever', '23:59:59.999999', '00:00:00+05:30', 'infinity');
INSERT INTO curiosities (id, about, fraction, amount, price) VALUES
    (7, 'not a number', 'NaN', 'NaN', 'NaN'),
    (8, 'more than any number', 'Infinity', '-Infinity', NULL),
    (9, 'very exact', 5e-324, 0.1 ^ 60, -9999.99),
    (10, 'very large', -1.7976931348623157e308, 10::numeric ^ 200 + 1, 9999.99);
INSERT INTO curiosities (id, about, grid, list, span_of_ints, bits, shape, position, blob) VALUES
    (11, 'nested', '{{1,2,3},{4,NULL,6}}', '{"", NULL, "NULL", "comma, \"quote\""}', '(1,10]', B'10110', '((0,0),(1,0.5),(2,2))',
        '16/B374D848', '\x00ff00'),
    (12, 'empty', '{}', '{}', 'empty', B'', NULL, '0/0', '');
INSERT INTO curiosities (id, about, list) VALUES
    (13, 'an array that counts from 0', '[0:1]={zero,one}'),
    (14, 'many alphabets', '{"ß ﬁ Ǆ", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "👩‍👩‍👧‍👦", "עברית", "สวัสดี", "e\u0301"}');

ALTER TABLE events ADD PRIMARY KEY (id, happened_at);
ALTER TABLE payments ADD PRIMARY KEY (id);
ALTER TABLE orders ADD FOREIGN KEY (customer_id) REFERENCES customers;
ALTER TABLE order_items ADD FOREIGN KEY (order_id) REFERENCES orders, ADD FOREIGN KEY (product_id) REFERENCES products;
CREATE INDEX ON payments (order_id);
ALTER TABLE payments ADD FOREIGN KEY (order_id) REFERENCES orders;
ANALYZE searches, curiosities;
