-- A webhook worker's places: what of them a host, and a tenant to a host, may still be given.
-- read_places(free, words, at): `words` from index `at` are how many more a host that is not listed may have; how many
--   times what is left free a tenant may hold, the same for good hosts, for slow ones; how many good hosts, these; how
--   many slow ones, these; how many tenants hold places, for each tenant, held; then per host with a room of its own:
--   host, room
-- room(host, tenant): how many more. took(host, tenant): one of them is used.

local free, used, any_room, any_share, rooms, held, shares = 0, 0, 0, 0, {}, {}, {}

local function read_places(free_places, words, at)
  free, any_room, any_share = tonumber(free_places), tonumber(words[at]), tonumber(words[at + 1])
  local good_at = at + 4
  local slow_at = good_at + 1 + tonumber(words[good_at])
  local tenants_at = slow_at + 1 + tonumber(words[slow_at])
  local hosts_at = tenants_at + 1 + 2 * tonumber(words[tenants_at])
  for i = good_at + 1, slow_at - 1 do shares[words[i]] = tonumber(words[at + 2]) end
  for i = slow_at + 1, tenants_at - 1 do shares[words[i]] = tonumber(words[at + 3]) end
  for i = tenants_at + 1, hosts_at - 1, 2 do held[words[i]] = tonumber(words[i + 1]) end
  for i = hosts_at, #words, 2 do rooms[words[i]] = tonumber(words[i + 1]) end
end

-- One more, and one more, while the tenant holds less than its share of what is left free by then.
local function room(host, tenant)
  local left, share = free - used, shares[host] or any_share
  local in_share = math.ceil((share * left - (held[tenant] or 0)) / (share + 1))
  return math.max(0, math.min(rooms[host] or any_room, left, in_share))
end

local function took(host, tenant)
  used = used + 1
  rooms[host] = (rooms[host] or any_room) - 1
  held[tenant] = (held[tenant] or 0) + 1
end
