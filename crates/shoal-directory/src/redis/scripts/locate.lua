local me, claim_ms, life_ms = ARGV[1], ARGV[2], ARGV[3]
local first = 5 + ARGV[4]
local uncounted = { [me] = true }
for at = 5, first - 1 do
  uncounted[ARGV[at]] = true
end

local function located(index)
  local others = {}
  for _, holder in ipairs(holders_of(index)) do
    if not uncounted[holder] then
      others[#others + 1] = holder
    end
  end
  if #others > 0 then
    return 'h' .. table.concat(others)
  end
  local claimant = claimant_of(index, claim_ms)
  if claimant and not uncounted[claimant] then
    return 'c' .. claimant
  end
  redis.call('HSET', KEYS[1], 'c' .. index, me .. string.format('%d', now() + claim_ms))
  redis.call('PEXPIRE', KEYS[1], life_ms)
  return 'y'
end

local answers = {}
for at = first, #ARGV do
  answers[#answers + 1] = located(ARGV[at])
end
return { answers, elsewhere(me) }
