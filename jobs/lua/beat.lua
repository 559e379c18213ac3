-- Record that a worker is alive, by the server's clock.
-- KEYS none.  ARGV now override, worker id, what it says of itself
-- Replies OK.
-- uses: prelude

even_when_full()
redis.call('HSET', WORKERS, ARGV[2], text(now_ms(ARGV[1])) .. ' ' .. ARGV[3])
return 'OK'
