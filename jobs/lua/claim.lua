-- Take up to `limit` due jobs of one model for an attempt each, best score first, and lease them to the caller.
-- KEYS none.  ARGV now override, model, limit, lease ms, worker id, newest record version we read,
--   redeliveries from which a job runs alone, 1 if the caller has nothing in flight for this model (else 0)
-- Replies {now, next due ms or 0, entries skipped, {id, attempt, failures, redeliveries, created, due, request}...}.
-- A job that was lost with its worker twice may be what kills workers: it is given out alone, to an idle lane only.
-- Entries of a newer version are left for others; entries without a queued record are dropped; late ones expire.
-- uses: prelude finish

local now, model, limit, lease_ms = now_ms(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local version, alone_from, is_idle = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8] == '1'
local ready, scheduled, MOST_SKIPPED = ready_key(model), scheduled_key(model), 1000

for _, id in ipairs(redis.call('ZRANGEBYSCORE', scheduled, '-inf', text(now), 'LIMIT', 0, MOST_SKIPPED)) do
  redis.call('ZREM', scheduled, id)
  redis.call('ZADD', ready, redis.call('HGET', job_key(id), 'score') or '0', id)
end

local claimed, ids, expired, offset, skipped, is_full = {}, {}, {}, 0, 0, limit < 1
local function take(id)
  local job = redis.call('HMGET', job_key(id), 'state', 'model', 'attempt', 'keep_ms', 'record_ms', 'v',
    'queue_deadline_ms', 'failures', 'redeliveries', 'created_ms', 'due_ms', 'request')
  if job[1] ~= 'queued' then
    redis.call('ZREM', ready, id)
    skipped = skipped + 1
  elseif tonumber(job[6]) > version then
    offset, skipped = offset + 1, skipped + 1
  elseif tonumber(job[7]) <= now then
    finish(id, job, 'expired', now, '')
    expired[#expired + 1] = id
  elseif tonumber(job[9]) >= alone_from and (#claimed > 0 or not is_idle) then
    is_full = true
  else
    local attempt = tonumber(job[3]) + 1
    redis.call('ZREM', ready, id)
    redis.call('ZADD', leased_key(model), text(now + lease_ms), id)
    redis.call('HSET', job_key(id), 'state', 'in_progress', 'attempt', attempt, 'started_ms', text(now),
      'worker', ARGV[5])
    ids[#ids + 1] = id
    claimed[#claimed + 1] = {id, attempt, tonumber(job[8]), tonumber(job[9]), job[10], job[11], job[12]}
    is_full = #claimed >= limit or tonumber(job[9]) >= alone_from
  end
end
while not is_full and skipped < MOST_SKIPPED do
  local page = redis.call('ZRANGE', ready, offset, offset + limit - #claimed - 1)
  if #page == 0 then break end
  for _, id in ipairs(page) do
    if not is_full then take(id) end
  end
end
if redis.call('EXISTS', ready) == 0 then redis.call('DEL', wake_key(model)) end
if #ids > 0 then redis.call('PUBLISH', STARTED, table.concat(ids)) end
if #expired > 0 then redis.call('PUBLISH', DONE, table.concat(expired)) end
local next_due = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
return {text(now), next_due[2] or '0', skipped, unpack(claimed)}
