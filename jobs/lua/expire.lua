-- The sweeper: end queued jobs that waited past their deadline, and those that were left half-written: running ones
-- that nobody holds a lease for, and queued ones that lie in no queue.
-- KEYS none.  ARGV now override, limit, look-again ms, newest record version we read, outcome for lost jobs; ids to
--   look at ('' = those that are due)
-- Replies {{expired ids}, {lost ids}}. Entries without a record are dropped. No job of a newer version is lost here.
-- uses: prelude load announce finish

local now, again, version, outcome, ids = now_ms(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], {}
local is_sweep, expired, lost = ARGV[6] == '', {}, {}
if is_sweep then
  ids = redis.call('ZRANGEBYSCORE', OPEN, '-inf', text(now), 'LIMIT', 0, ARGV[2])
else
  for i = 6, #ARGV do ids[#ids + 1] = ARGV[i] end
end
even_when_full()
for _, id in ipairs(ids) do
  local job = record(id, 'state', 'model', 'attempt', 'keep_ms', 'record_ms', 'tenant', 'webhook',
    'queue_deadline_ms', 'v')
  local deadline, is_newer = tonumber(job[8]), (tonumber(job[9]) or 0) > version
  local is_running, is_queued = job[1] == 'in_progress', job[1] == 'queued'
  local is_late = is_queued and deadline and deadline <= now
  local is_held = is_running and redis.call('ZSCORE', leased_key(job[2] or ''), id)
  local is_half = is_running and not is_held or is_queued and not deadline
    or is_late and not is_waiting(job[2] or '', id)
  if is_half and not is_newer then
    finish(id, job, 'failed', now, outcome)
    lost[#lost + 1] = id
  elseif is_late then
    finish(id, job, 'expired', now, '')
    expired[#expired + 1] = id
  elseif is_sweep and is_running then
    redis.call('ZADD', OPEN, text(now + again), id)
  elseif is_sweep and is_queued then
    redis.call('ZADD', OPEN, text(deadline or now + again), id)
  elseif not is_queued and not is_running then
    redis.call('ZREM', OPEN, id)
    free({id})
  end
end
clear_finished()
write_load()
return {expired, lost}
