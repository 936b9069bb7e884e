redis.call('HDEL', KEYS[1], 'c' .. ARGV[1])
return 1
