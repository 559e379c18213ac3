-- finish(id, job, state, now, outcome): make a job terminal and start the clock of its record. `job` = FINISH_FIELDS
-- as text; outcome '' keeps what stands.
-- clear_finished(): drop queue entries and payloads of all that were finished, note when they are to be forgotten, and
-- publish them; called once, at the end of a script that finishes.

local FINISH_FIELDS = {'state', 'model', 'attempt', 'keep_ms', 'record_ms', 'tenant', 'webhook'}
local DAY_MS = 86400000
local finished, inputs, entries, shares, forget = {}, {}, {}, {}, {}

-- Leave the message about the end, and keep the result until the job's messages are delivered or given up.
local function hold(id, job, state, now)
  local held_ms = announce(id, job[6] or '', job[7], state, now)
  if held_ms > 0 then
    redis.call('HSET', job_key(id), 'webhook_holds', '1')
    if job[3] then keep_at_least(output_key(id, job[3]), held_ms) end
  end
  return held_ms
end

local function finish(id, job, state, now, outcome)
  local lifetime = (tonumber(job[4]) or DAY_MS) + (tonumber(job[5]) or DAY_MS)
  if outcome == '' then
    redis.call('HSET', job_key(id), 'state', state, 'finished_ms', text(now))
  else
    redis.call('HSET', job_key(id), 'state', state, 'finished_ms', text(now), 'outcome', outcome)
  end
  if job[7] then lifetime = math.max(lifetime, hold(id, job, state, now)) end
  redis.call('PEXPIRE', job_key(id), text(lifetime))
  local model = job[2] or ''
  local queues = {leased_key(model)}
  if job[1] ~= 'in_progress' then
    local share = share_key(model, job[6] or '')
    queues, shares[share] = {ready_key(model), share, scheduled_key(model)}, {turns_key(model), job[6] or ''}
  end
  for _, queue in ipairs(queues) do
    entries[queue] = entries[queue] or {}
    table.insert(entries[queue], id)
  end
  finished[#finished + 1], inputs[#inputs + 1] = id, input_key(id)
  forget[#forget + 1], forget[#forget + 2] = text(now + lifetime), id .. (job[6] or '')
end

local function clear_finished()
  if #finished == 0 then return end
  for queue, ids in pairs(entries) do redis.call('ZREM', queue, unpack(ids)) end
  for share, turn in pairs(shares) do
    if redis.call('EXISTS', share) == 0 then redis.call('ZREM', unpack(turn)) end
  end
  redis.call('ZREM', OPEN, unpack(finished))
  redis.call('UNLINK', unpack(inputs))
  free(finished)
  write_load()
  redis.call('ZADD', FORGET, unpack(forget))
  redis.call('PUBLISH', DONE, table.concat(finished))
end
