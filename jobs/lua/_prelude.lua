-- Shared by every script: the clock, whole numbers as text, records, queues, and the doorbell.

local WAKE_TTL_MS = 3600000

local function text(number)
  return string.format('%.0f', number)
end

-- ARGV's clock in ms where a test gives one, else the server's own: workers' clocks never matter.
local function now_ms(override)
  local given = tonumber(override)
  if given > 0 then return given end
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- Fields of a record; none where there is no record, or where the key holds something that isn't ours.
local function record(id, ...)
  local fields = redis.pcall('HMGET', job_key(id), ...)
  return fields.err and {} or fields
end

-- Whether a job lies among the queued ones of its model; where it says so and doesn't, it is half-written.
local function is_waiting(model, id)
  return redis.call('ZSCORE', ready_key(model), id) or redis.call('ZSCORE', scheduled_key(model), id)
end

-- What lives shorter lives so long from now on.
local function keep_at_least(key, lifetime_ms)
  if redis.call('PTTL', key) < lifetime_ms then redis.call('PEXPIRE', key, text(lifetime_ms)) end
end

-- At its memory limit Redis still runs a script whose first write frees memory. What moves or ends a job begins with
-- this, so that running jobs finish and make room.
local function even_when_full()
  redis.call('DEL', NOTHING)
end

-- One token is enough: whoever takes it and leaves work behind rings again (see claim.lua).
local function ring(model)
  local wake = wake_key(model)
  if redis.call('EXISTS', wake) == 0 then
    redis.call('LPUSH', wake, '1')
    redis.call('PEXPIRE', wake, WAKE_TTL_MS)
  end
end
