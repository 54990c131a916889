-- Takes a lease, or prolongs it for the owner that holds it.
-- KEYS[1] {lease}, any key that is a string
-- ARGV[1] owner
-- ARGV[2] seconds
-- returns 1 if the owner now holds it, else 0
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
return 1
