SELECT (SELECT max(id) FROM shop.customers) AS customers, (SELECT max(id) FROM shop.products) AS products
