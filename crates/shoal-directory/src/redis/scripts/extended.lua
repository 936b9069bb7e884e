-- Parts of the scripts about extensions. KEYS[1] is the hash of a group's extensions. A field holds until when the
-- extension lasts, a space, and its value.

-- Returns the milliseconds since 1970, by this server.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns the values by name, and forgets the extensions that are over.
local function extensions(time)
  local fields, kept = redis.call('HGETALL', KEYS[1]), {}
  for at = 1, #fields, 2 do
    local until_ms, value = string.match(fields[at + 1], '^(%d+) (.*)$')
    if until_ms and tonumber(until_ms) > time then
      kept[fields[at]] = value
    else
      redis.call('HDEL', KEYS[1], fields[at])
    end
  end
  return kept
end
