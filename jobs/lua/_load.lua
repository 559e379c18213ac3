-- What jobs that have not ended take up, in sums by tenant and model. An entry of a job's own says what was added for
-- it, and exactly that is taken off at its end, whatever became of its record: the sums can't drift.
-- load(field): a sum as it is now. hold(id, nbytes, tenant, model): count a new job.
-- free(ids): these have ended. write_load(): write what changed; at the end of a script that changes anything.

local sums, changes = {}, {}

local function load(field)
  sums[field] = sums[field] or tonumber(redis.call('HGET', LOAD, field) or 0)
  return sums[field] + (changes[field] or 0)
end

local function add(amount, ...)
  for _, field in ipairs({...}) do changes[field] = (changes[field] or 0) + amount end
end

local function hold(id, nbytes, tenant, model)
  if redis.call('HSETNX', HELD, id, text(nbytes) .. ':' .. tenant .. ':' .. model) == 0 then return end
  add(nbytes, 'bytes', 'bytes:model:' .. model, 'bytes:tenant:' .. tenant)
  add(1, 'jobs:tenant:' .. tenant)
end

local function free(ids)
  for _, entry in ipairs(redis.call('HMGET', HELD, unpack(ids))) do
    local nbytes, tenant, model = string.match(entry or '', '^(%d+):([^:]*):(.*)$')
    if nbytes then
      add(-tonumber(nbytes), 'bytes', 'bytes:model:' .. model, 'bytes:tenant:' .. tenant)
      add(-1, 'jobs:tenant:' .. tenant)
      add(1, 'ended', 'ended:model:' .. model, 'ended:tenant:' .. tenant)
    end
  end
  redis.call('HDEL', HELD, unpack(ids))
end

local function write_load()
  for field, amount in pairs(changes) do
    if amount ~= 0 then redis.call('HINCRBY', LOAD, field, text(amount)) end
  end
  sums, changes = {}, {}
end
