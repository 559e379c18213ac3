-- Take up to `limit` due jobs of one model for an attempt each, tenants in turns and each one's best score first, and
-- lease them to the caller.
-- KEYS none.  ARGV now override, model, limit, lease ms, worker id, newest record version we read,
--   redeliveries from which a job runs alone, what to do with such a job: 0 stop in front of it, 1 take it (the caller
--   has nothing else of this model in flight, and no other such job), 2 leave it to others
-- Replies {now, next due ms or 0, entries dropped, entries left to newer versions or other workers, 1 where it stopped
--   in front of a job that runs alone, {id, attempt, failures, redeliveries, created, due, request}...}.
-- A job that was lost with its worker twice may be what kills workers: it is given out alone, to an idle lane only.
-- Where a lane is not idle it waits at its place and all behind it, so that the lane becomes idle; where another lane
-- of the worker runs one, nobody waits for it.
-- Entries without a sound queued record are dropped; late ones expire. Where work is left, the bell rings again.
-- uses: prelude load announce finish enter ready promote turns

local now, model, limit, lease_ms = now_ms(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local version, alone_from, suspects = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local IS_TAKEN, IS_LEFT = '1', '2'
local MOST_SKIPPED = 1000
local claimed, ids, leases, taken, left, is_full, stopped = {}, {}, {}, {}, 0, limit < 1, 0

local function lease(id, job)
  local attempt = tonumber(job[3]) + 1
  redis.call('HSET', job_key(id), 'state', 'in_progress', 'attempt', attempt, 'started_ms', text(now),
    'worker', ARGV[5])
  ids[#ids + 1], taken[#taken + 1] = id, id
  drop(id, 1)
  leases[#leases + 1], leases[#leases + 2] = text(now + lease_ms), id
  claimed[#claimed + 1] = {id, attempt, tonumber(job[10]), tonumber(job[11]), job[12], job[13], job[14]}
  if job[7] and attempt == 1 then announce(id, job[6] or '', job[7], 'started', now) end
end

local function look_at(id)
  local job = record(id, 'state', 'model', 'attempt', 'keep_ms', 'record_ms', 'tenant', 'webhook', 'v',
    'queue_deadline_ms', 'failures', 'redeliveries', 'created_ms', 'due_ms', 'request')
  local deadline, redeliveries = tonumber(job[9]), tonumber(job[11])
  if job[1] == 'queued' and (tonumber(job[8]) or 0) > version then
    left = left + 1
  elseif job[1] ~= 'queued' or not (tonumber(job[3]) and deadline and tonumber(job[10]) and redeliveries) then
    taken[#taken + 1] = id
    drop(id)
  elseif deadline <= now then
    finish(id, job, 'expired', now, '')
  elseif redeliveries >= alone_from and suspects == IS_LEFT then
    left = left + 1
  elseif redeliveries >= alone_from and (#claimed > 0 or suspects ~= IS_TAKEN) then
    is_full, stopped = true, 1
  else
    lease(id, job)
    is_full = #claimed >= limit or redeliveries >= alone_from
  end
end

even_when_full()
promote_due(model, now)
while not is_full and left + #taken - #ids + #finished < MOST_SKIPPED do
  local page = next_in_turn(model, limit - #claimed)
  if #page == 0 then break end
  for _, id in ipairs(page) do
    if not is_full then look_at(id) end
  end
end
clear_finished()
if #taken > 0 then redis.call('ZREM', ready_key(model), unpack(taken)) end
close_turns(model)
if #ids > 0 then
  redis.call('ZADD', leased_key(model), unpack(leases))
  redis.call('PUBLISH', STARTED, table.concat(ids))
end
if redis.call('EXISTS', ready_key(model)) == 0 then
  redis.call('DEL', wake_key(model))
elseif #taken + #finished > 0 then
  ring(model)
end
local next_due = redis.call('ZRANGE', scheduled_key(model), 0, 0, 'WITHSCORES')
return {text(now), next_due[2] or '0', #taken - #ids, left, stopped, unpack(claimed)}
