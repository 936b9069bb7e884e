local node, holders_max, life_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]
for at = 4, #ARGV do
  local index = ARGV[at]
  local holders = without(holders_of(index), node)
  if #holders < holders_max then
    holders[#holders + 1] = node
    set_holders(index, holders)
  end
  end_claim(index, node)
end
redis.call('PEXPIRE', KEYS[1], life_ms)
return 0
