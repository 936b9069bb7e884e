for at = 1, #ARGV, 2 do
  local index = ARGV[at]
  if #holders_of(index) > 0 then
    set_weight(index, weight_of(index) + tonumber(ARGV[at + 1]))
  end
end
return 0
