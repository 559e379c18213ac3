-- enter(key, score, id): note an entry of a sorted set; enter_all(): write what was noted, each set in one command.

local noted = {}

local function enter(key, score, id)
  local entries = noted[key] or {}
  entries[#entries + 1], entries[#entries + 2] = score, id
  noted[key] = entries
end

local function enter_all()
  for key, entries in pairs(noted) do redis.call('ZADD', key, unpack(entries)) end
end
