-- Something to replicate; run once, when the database is made.
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE orders (id bigint PRIMARY KEY, customer int NOT NULL REFERENCES customers, total numeric(12, 2), placed timestamptz DEFAULT now());
INSERT INTO customers SELECT g, 'customer ' || g FROM generate_series(1, 100) AS g;
INSERT INTO orders SELECT g, g % 100 + 1, g * 1.5 FROM generate_series(1, 10000) AS g;
CREATE PUBLICATION shop FOR TABLE customers, orders;
