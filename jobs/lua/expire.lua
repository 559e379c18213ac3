-- The sweeper: end queued jobs that waited past their deadline, and running ones that nobody holds a lease for.
-- KEYS none.  ARGV now override, limit, look-again ms, outcome for lost jobs; ids to look at ('' = those that are due)
-- Replies {{expired ids}, {lost ids}}. Entries without a record are dropped.
-- uses: prelude announce finish

local now, again, outcome, ids = now_ms(ARGV[1]), tonumber(ARGV[3]), ARGV[4], {}
local is_sweep, expired, lost = ARGV[5] == '', {}, {}
if is_sweep then
  ids = redis.call('ZRANGEBYSCORE', OPEN, '-inf', text(now), 'LIMIT', 0, ARGV[2])
else
  for i = 5, #ARGV do ids[#ids + 1] = ARGV[i] end
end
even_when_full()
for _, id in ipairs(ids) do
  local job = record(id, 'state', 'model', 'attempt', 'keep_ms', 'record_ms', 'tenant', 'webhook',
    'queue_deadline_ms')
  local deadline = tonumber(job[8])
  local is_running = job[1] == 'in_progress'
  local is_held = is_running and job[2] and redis.call('ZSCORE', leased_key(job[2]), id)
  if job[1] == 'queued' and deadline and deadline <= now then
    finish(id, job, 'expired', now, '')
    expired[#expired + 1] = id
  elseif is_running and not is_held or job[1] == 'queued' and not deadline then
    finish(id, job, 'failed', now, outcome)
    lost[#lost + 1] = id
  elseif is_sweep and is_running then
    redis.call('ZADD', OPEN, text(now + again), id)
  elseif is_sweep and job[1] == 'queued' then
    redis.call('ZADD', OPEN, text(deadline), id)
  elseif job[1] ~= 'queued' and not is_running then
    redis.call('ZREM', OPEN, id)
  end
end
clear_finished()
return {expired, lost}
