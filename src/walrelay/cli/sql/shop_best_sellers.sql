SELECT p.name AS product, p.attributes->>'colour' AS colour, sum(i.quantity)::BIGINT AS sold,
       round(100 * avg((c.address.country = 'DE')::INTEGER))::INTEGER || ' %' AS "to Germany"
FROM shop.order_items i
JOIN shop.products p ON p.id = i.product_id
JOIN shop.orders o ON o.id = i.order_id
JOIN shop.customers c ON c.id = o.customer_id
GROUP BY p.id, p.name, colour ORDER BY sold DESC, p.id LIMIT 6
