-- Whether a server process of ours waits for us: to read what it has sent, or to ask it something.
SELECT coalesce(wait_event_type = 'Client' OR wait_event = 'WalSenderMain', false) AS waits
FROM pg_catalog.pg_stat_activity
WHERE pid = %(pid)s AND usename = session_user
