-- Shared by every script: the clock, whole numbers as text, and the doorbell.

local WAKE_CAP = 64
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

local function ring(model)
  local wake = wake_key(model)
  if redis.call('LLEN', wake) < WAKE_CAP then
    redis.call('LPUSH', wake, '1')
    redis.call('PEXPIRE', wake, WAKE_TTL_MS)
  end
end
