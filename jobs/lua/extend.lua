-- Renew the leases of running attempts.
-- KEYS none.  ARGV now override, lease ms; then per job: id, attempt
-- Replies one word per job: OK; LEASE_LOST (reaped, canceled or settled meanwhile: stop working on it).
-- uses: prelude

local until_ms, replies = text(now_ms(ARGV[1]) + tonumber(ARGV[2])), {}
for i = 3, #ARGV, 2 do
  local id, attempt = ARGV[i], ARGV[i + 1]
  local job = redis.call('HMGET', job_key(id), 'state', 'attempt', 'model')
  local is_ours = job[1] == 'in_progress' and job[2] == attempt
  if is_ours then redis.call('ZADD', leased_key(job[3]), until_ms, id) end
  replies[#replies + 1] = is_ours and 'OK' or 'LEASE_LOST'
end
return replies
