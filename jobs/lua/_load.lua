-- What jobs that have not ended take up, in sums by tenant and model. An entry of a job's own says what was added for
-- it, and exactly that is taken off at its end, whatever became of its record: the sums can't drift.
-- load(field): a sum as it is now. hold(id, nbytes, tenant, model): count a new job.
-- free(ids): these have ended. write_load(): write what changed; at the end of a script that changes anything.

local sums, changes, held = {}, {}, {}

local function load(field)
  sums[field] = sums[field] or tonumber(redis.call('HGET', LOAD, field) or 0)
  return sums[field] + (changes[field] or 0)
end

local function add(amount, ...)
  for _, field in ipairs({...}) do changes[field] = (changes[field] or 0) + amount end
end

local function count(sign, nbytes, tenant, model)
  add(sign * tonumber(nbytes), 'bytes', 'bytes:model:' .. model, 'bytes:tenant:' .. tenant)
  add(sign, 'jobs:tenant:' .. tenant)
end

local function hold(id, nbytes, tenant, model)
  count(1, nbytes, tenant, model)
  held[#held + 1] = {id = id, nbytes = nbytes, tenant = tenant, model = model}
end

local function free(ids)
  for _, entry in ipairs(redis.call('HMGET', HELD, unpack(ids))) do
    local nbytes, tenant, model = string.match(entry or '', '^(%d+):([^:]*):(.*)$')
    if nbytes then
      count(-1, nbytes, tenant, model)
      add(1, 'ended', 'ended:model:' .. model, 'ended:tenant:' .. tenant)
    end
  end
  redis.call('HDEL', HELD, unpack(ids))
end

-- Write down what the new jobs take up; one that has an entry from a lost record of this id is counted by that.
local function write_held()
  local ids, entries = {}, {}
  for i, job in ipairs(held) do ids[i] = job.id end
  for i, known in ipairs(#ids > 0 and redis.call('HMGET', HELD, unpack(ids)) or {}) do
    local job = held[i]
    if known then
      count(-1, job.nbytes, job.tenant, job.model)
    else
      entries[#entries + 1] = job.id
      entries[#entries + 1] = text(job.nbytes) .. ':' .. job.tenant .. ':' .. job.model
    end
  end
  if #entries > 0 then redis.call('HSET', HELD, unpack(entries)) end
  held = {}
end

local function write_load()
  write_held()
  for field, amount in pairs(changes) do
    if amount ~= 0 then redis.call('HINCRBY', LOAD, field, text(amount)) end
  end
  sums, changes = {}, {}
end
