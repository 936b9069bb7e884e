-- Parts that the scripts share. KEYS[1] is the hash of a group.

local NODE_BYTES = 8
local GROUP_BLOCKS = 32
local WEIGHT_MAX = 2 ^ 53

-- Returns the milliseconds since 1970, by this server.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns the holders of a block as a list of nodes. A field that is no such list counts as empty.
local function holders_of(index)
  local field = redis.call('HGET', KEYS[1], 'h' .. index)
  if not field or #field % NODE_BYTES ~= 0 then
    return {}
  end
  local holders = {}
  for first = 1, #field, NODE_BYTES do
    holders[#holders + 1] = string.sub(field, first, first + NODE_BYTES - 1)
  end
  return holders
end

-- Returns the node whose claim to a block holds, or nil. A claim lasts for claim_ms at most: one that ends later
-- was made by a server with another clock.
local function claimant_of(index, claim_ms)
  local field = redis.call('HGET', KEYS[1], 'c' .. index)
  local until_ms = field and tonumber(string.sub(field, NODE_BYTES + 1))
  if until_ms and until_ms > now() and until_ms <= now() + claim_ms then
    return string.sub(field, 1, NODE_BYTES)
  end
  return nil
end

-- Returns a list without a node.
local function without(holders, node)
  local others = {}
  for _, holder in ipairs(holders) do
    if holder ~= node then
      others[#others + 1] = holder
    end
  end
  return others
end

-- Sets the holders of a block. Without any, the block has no weight.
local function set_holders(index, holders)
  if #holders > 0 then
    redis.call('HSET', KEYS[1], 'h' .. index, table.concat(holders))
  else
    redis.call('HDEL', KEYS[1], 'h' .. index, 'w' .. index)
  end
end

-- Returns the global weight of a block. A field that is no such weight counts as zero.
local function weight_of(index)
  local weight = tonumber(redis.call('HGET', KEYS[1], 'w' .. index) or 0)
  if not weight or not (weight >= 0 and weight <= WEIGHT_MAX) then
    return 0
  end
  return math.floor(weight)
end

local function set_weight(index, weight)
  if weight > 0 then
    redis.call('HSET', KEYS[1], 'w' .. index, string.format('%.0f', math.min(weight, WEIGHT_MAX)))
  else
    redis.call('HDEL', KEYS[1], 'w' .. index)
  end
end

-- Returns the blocks of the group that nodes other than this one hold, as the sum of 2^place.
local function elsewhere(node)
  local fields, bits = redis.call('HGETALL', KEYS[1]), 0
  for at = 1, #fields, 2 do
    local index = string.match(fields[at], '^h(%d+)$')
    if index and #without(holders_of(index), node) > 0 then
      bits = bits + 2 ^ (index % GROUP_BLOCKS)
    end
  end
  return string.format('%.0f', bits)
end

-- Ends the claim of a node to a block.
local function end_claim(index, node)
  local field = redis.call('HGET', KEYS[1], 'c' .. index)
  if field and string.sub(field, 1, NODE_BYTES) == node then
    redis.call('HDEL', KEYS[1], 'c' .. index)
  end
end
