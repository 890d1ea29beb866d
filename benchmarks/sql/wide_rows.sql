INSERT INTO wide
SELECT id, md5('a' || id) || a.text, md5('b' || id) || b.text, md5('c' || id) || c.text, md5('d' || id) || d.text,
       md5('e' || id) || e.text
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS id
JOIN pool AS a ON a.n = id %% 997
JOIN pool AS b ON b.n = (id * 3 + 1) %% 997
JOIN pool AS c ON c.n = (id * 5 + 2) %% 997
JOIN pool AS d ON d.n = (id * 7 + 3) %% 997
JOIN pool AS e ON e.n = (id * 11 + 4) %% 997
