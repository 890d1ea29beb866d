-- What goes on in the shop: pg_temp.trade(n) is the n-th transaction of a day. It inserts, updates and deletes in several
-- tables; now and then it changes keys, moves a row to another partition, or touches a whole table.
SET search_path = shop, public;
SET timezone = 'UTC';

CREATE FUNCTION pg_temp.trade(n bigint, customers integer, products integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    buyer integer := 1 + n * 7919 % customers;
    product integer := 1 + n * 104729 % products;
    ordered bigint;
    oldest bigint;
BEGIN
    -- Searches have no primary key, so rows can only be added.
    INSERT INTO searches VALUES (timestamp '2025-12-24' + n * interval '1 second', 'gift #' || n, n % 300, n % 40 + 0.5);
    INSERT INTO events VALUES (
        1000000000 + n, timestamptz '2025-12-01' + n % 2000000 * interval '1 second', buyer, 'basket', NULL,
        jsonb_build_object('page', '/p/' || product, 'ab', ARRAY['y', NULL]));

    INSERT INTO orders (customer_id, status, currency, shipping, coupon, gift, placed_at, delivery_time)
    VALUES (buyer, 'placed', 'EUR', 4.9, CASE WHEN n % 3 = 0 THEN 'for you 🎁' END, n % 3 = 0,
        timestamptz '2025-12-24' + n * interval '1 second', n % 50 * interval '1 hour')
    RETURNING id INTO ordered;
    INSERT INTO order_items
    SELECT ordered, line, p.id, 1 + line % 4, p.price
    FROM generate_series(1, 1 + n % 4) AS line
    JOIN products AS p ON p.id = 1 + (product + line) % products;

    IF n % 2 = 0 THEN
        INSERT INTO payments
        VALUES (1000000000 + n, ordered, 'card', n::numeric(10, 2)::money, md5('now ' || n)::uuid, timestamp '2025-12-24');
        UPDATE orders SET status = 'paid' WHERE id = ordered;
    END IF;
    IF n % 3 = 0 THEN
        UPDATE customers
        SET preferences = preferences || jsonb_build_object('last_order', ordered), tags = (tags || ('order ' || n))[1:5],
            address.street = 'Sesame Street ' || n, tier = 'gold'
        WHERE id = buyer;
    END IF;
    IF n % 4 = 0 THEN
        UPDATE products SET rating = n % 5, price = price + 0.01, promotions = NULL WHERE id = product;
    END IF;
    IF n % 5 = 0 THEN
        -- The oldest order and all about it.
        SELECT min(id) INTO oldest FROM orders;
        DELETE FROM payments WHERE order_id = oldest;
        DELETE FROM order_items WHERE order_id = oldest;
        DELETE FROM orders WHERE id = oldest;
    END IF;
    IF n % 7 = 0 THEN
        UPDATE order_items SET line = line + 100 WHERE order_id = ordered;
    END IF;
    IF n % 11 = 0 THEN
        UPDATE events SET happened_at = happened_at - interval '6 months'
        WHERE id = 1000000000 + n AND happened_at = timestamptz '2025-12-01' + n % 2000000 * interval '1 second';
    END IF;
    IF n % 13 = 0 THEN
        INSERT INTO gift_cards VALUES ('card ' || n, 50::money, daterange('2025-12-24', NULL));
        UPDATE gift_cards SET balance = balance - 9.99::money WHERE code = 'card ' || n - 13;
        DELETE FROM gift_cards WHERE code = 'card ' || n - 39;
    END IF;
    IF n % 17 = 0 THEN
        UPDATE curiosities SET moment = CASE WHEN n % 2 = 0 THEN timestamp 'infinity' END, amount = n / 3.0, list = ARRAY[n::text, NULL]
        WHERE id = 1 + n % 14;
    END IF;
    IF n % 1000 = 500 THEN
        TRUNCATE gift_cards;
        UPDATE products SET price = price * 1.01;
    END IF;
END
$$;
