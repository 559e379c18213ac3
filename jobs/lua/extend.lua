-- Renew the leases of running attempts.
-- KEYS none.  ARGV now override, lease ms; then per job: id, attempt
-- Replies one word per job: OK; LEASE_LOST (reaped, canceled or settled meanwhile: stop working on it).
-- uses: prelude

local until_ms, leases, replies = text(now_ms(ARGV[1]) + tonumber(ARGV[2])), {}, {}
for i = 3, #ARGV, 2 do
  local id, attempt = ARGV[i], ARGV[i + 1]
  local job = record(id, 'state', 'attempt', 'model')
  local is_ours = job[1] == 'in_progress' and job[2] == attempt
  if is_ours then
    local leased = leased_key(job[3])
    leases[leased] = leases[leased] or {}
    leases[leased][#leases[leased] + 1] = until_ms
    leases[leased][#leases[leased] + 1] = id
  end
  replies[#replies + 1] = is_ours and 'OK' or 'LEASE_LOST'
end
even_when_full()
for leased, entries in pairs(leases) do redis.call('ZADD', leased, unpack(entries)) end
return replies
