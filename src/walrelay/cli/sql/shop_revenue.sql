SELECT strftime(date_trunc('month', o.placed_at), '%Y-%m') AS month,
       count(DISTINCT o.id) AS orders,
       sum(i.quantity * i.unit_price) FILTER (c.tier = 'bronze') AS bronze,
       sum(i.quantity * i.unit_price) FILTER (c.tier = 'silver') AS silver,
       sum(i.quantity * i.unit_price) FILTER (c.tier = 'gold') AS gold
FROM shop.orders o
JOIN shop.order_items i ON i.order_id = o.id
JOIN shop.customers c ON c.id = o.customer_id
WHERE o.status <> 'cancelled'
GROUP BY month ORDER BY month DESC LIMIT 6
