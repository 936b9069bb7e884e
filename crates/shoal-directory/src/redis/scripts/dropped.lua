local node = ARGV[1]
for at = 2, #ARGV do
  local index = ARGV[at]
  set_holders(index, without(holders_of(index), node))
  end_claim(index, node)
end
return 0
