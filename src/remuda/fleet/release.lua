-- Gives a lease back, if it is still the owner's.
-- KEYS[1] {lease}, any key that is a string
-- ARGV[1] owner
-- returns 1 if it was given back, else 0
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
