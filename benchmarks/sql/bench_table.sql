CREATE TABLE bench (
    id bigint PRIMARY KEY,
    customer integer NOT NULL,
    status text NOT NULL,
    amount numeric(12,2) NOT NULL,
    price double precision NOT NULL,
    created timestamptz NOT NULL,
    day date NOT NULL,
    flag boolean NOT NULL,
    note text NOT NULL,
    uid uuid NOT NULL,
    tags text
);
CREATE PUBLICATION bench FOR TABLE bench
