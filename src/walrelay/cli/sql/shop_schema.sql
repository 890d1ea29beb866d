-- A small shop. Between them its tables have most of the types that people use, and some that they should not.
CREATE EXTENSION citext;
CREATE EXTENSION hstore;
CREATE EXTENSION ltree;
CREATE EXTENSION vector;

CREATE SCHEMA shop;
SET search_path = shop, public;

CREATE TYPE tier AS ENUM ('bronze', 'silver', 'gold');
CREATE TYPE order_status AS ENUM ('placed', 'paid', 'shipped', 'delivered', 'cancelled');
CREATE TYPE payment_method AS ENUM ('card', 'transfer', 'wallet', 'invoice');
CREATE TYPE address AS (street text, postcode text, city text, country char(2));
CREATE DOMAIN quantity AS smallint CHECK (value > 0);

CREATE TABLE customers (
    id integer NOT NULL,
    account uuid NOT NULL,
    email citext NOT NULL,
    first_name text NOT NULL,
    last_name text NOT NULL,
    tier tier NOT NULL,
    address address,
    birthday date,
    last_ip inet,
    tags text[] NOT NULL,
    preferences jsonb NOT NULL,
    newsletter boolean NOT NULL,
    credit_limit numeric(12, 2),
    created_at timestamptz NOT NULL
);

CREATE TABLE products (
    id integer NOT NULL,
    sku varchar(12) NOT NULL,
    name text NOT NULL,
    category ltree NOT NULL,
    price numeric(10, 2) NOT NULL,
    weight_kg real,
    rating double precision,
    tags text[] NOT NULL,
    attributes jsonb NOT NULL,
    labels hstore,
    search tsvector NOT NULL,
    available daterange NOT NULL,
    promotions tstzmultirange,
    thumbnail bytea,
    embedding vector(4)
);

CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY,
    customer_id integer NOT NULL,
    status order_status NOT NULL,
    currency char(3) NOT NULL,
    shipping numeric(8, 2) NOT NULL,
    coupon text,
    gift boolean NOT NULL,
    placed_at timestamptz NOT NULL,
    promised_for date,
    slot_from time,
    delivery_time interval
);

CREATE TABLE order_items (
    order_id bigint NOT NULL,
    line smallint NOT NULL,
    product_id integer NOT NULL,
    quantity quantity NOT NULL,
    unit_price numeric(10, 2) NOT NULL
);

CREATE TABLE payments (
    id bigint NOT NULL,
    order_id bigint NOT NULL,
    method payment_method NOT NULL,
    amount money NOT NULL,
    reference uuid NOT NULL,
    paid_at timestamp NOT NULL
);

CREATE TABLE events (
    id bigint NOT NULL,
    happened_at timestamptz NOT NULL,
    customer_id integer,
    kind text NOT NULL,
    client cidr,
    payload jsonb NOT NULL
) PARTITION BY RANGE (happened_at);
CREATE TABLE events_2025_q1 PARTITION OF events FOR VALUES FROM ('2025-01-01') TO ('2025-04-01');
CREATE TABLE events_2025_q2 PARTITION OF events FOR VALUES FROM ('2025-04-01') TO ('2025-07-01');
CREATE TABLE events_2025_q3 PARTITION OF events FOR VALUES FROM ('2025-07-01') TO ('2025-10-01');
CREATE TABLE events_2025_q4 PARTITION OF events FOR VALUES FROM ('2025-10-01') TO ('2026-01-01');

-- Without a primary key.
CREATE TABLE searches (
    searched_at timestamp NOT NULL,
    words text NOT NULL,
    hits integer NOT NULL,
    took_ms real NOT NULL
);

-- Empty, as new features are.
CREATE TABLE gift_cards (
    code text PRIMARY KEY,
    balance money NOT NULL,
    valid daterange NOT NULL
);

-- What Postgres can hold and others often cannot.
CREATE TABLE curiosities (
    id smallint PRIMARY KEY,
    about text NOT NULL,
    day date,
    moment timestamp,
    instant timestamptz,
    clock time,
    clock_abroad timetz,
    span interval,
    fraction double precision,
    amount numeric,
    price numeric(6, 2),
    grid integer[][],
    list text[],
    span_of_ints int4range,
    bits varbit,
    shape polygon,
    position pg_lsn,
    blob bytea
);

CREATE PUBLICATION shop FOR TABLES IN SCHEMA shop WITH (publish_via_partition_root = true);
