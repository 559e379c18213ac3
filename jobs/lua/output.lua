-- Write an attempt's result payload although Redis is at its memory limit: the job that ends with it frees its input.
-- KEYS none.  ARGV key, payload, ttl ms
-- Replies OK.  Only used where a plain SET was refused: payloads pass through no script otherwise.
-- uses: prelude

even_when_full()
redis.call('SET', ARGV[1], ARGV[2], 'PX', ARGV[3])
return 'OK'
