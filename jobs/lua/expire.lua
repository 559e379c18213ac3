-- The sweeper: end queued jobs that waited past their deadline, and running ones that nobody holds a lease for.
-- KEYS none.  ARGV now override, limit, look-again ms, outcome for lost jobs; ids to look at ('' = those that are due)
-- Replies {{expired ids}, {lost ids}}.
-- uses: prelude finish

local now, again, outcome, ids = now_ms(ARGV[1]), tonumber(ARGV[3]), ARGV[4], {}
if ARGV[5] == '' then
  ids = redis.call('ZRANGEBYSCORE', OPEN, '-inf', text(now), 'LIMIT', 0, ARGV[2])
else
  for i = 5, #ARGV do ids[#ids + 1] = ARGV[i] end
end
local expired, lost, done = {}, {}, {}
for _, id in ipairs(ids) do
  local job = redis.call('HMGET', job_key(id), 'state', 'model', 'attempt', 'keep_ms', 'record_ms', 'queue_deadline_ms')
  if job[1] == 'queued' and tonumber(job[6]) <= now then
    finish(id, job, 'expired', now, '')
    expired[#expired + 1] = id
  elseif job[1] == 'in_progress' and not redis.call('ZSCORE', leased_key(job[2]), id) then
    finish(id, job, 'failed', now, outcome)
    lost[#lost + 1] = id
  elseif job[1] == 'in_progress' then
    redis.call('ZADD', OPEN, text(now + again), id)
  elseif job[1] ~= 'queued' then
    redis.call('ZREM', OPEN, id)
  end
end
for _, list in ipairs({expired, lost}) do
  if #list > 0 then redis.call('PUBLISH', DONE, table.concat(list)) end
end
return {expired, lost}
