for at = 1, #ARGV, 2 do
  local index = ARGV[at]
  set_weight(index, weight_of(index) - tonumber(ARGV[at + 1]))
end
return 0
