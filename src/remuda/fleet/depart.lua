-- Takes a member out of a set, with its keys: all of it or nothing. Refuses when the member is back, or something
-- still counts on it.
-- KEYS[1] {set}
-- KEYS[2..] {own}, the member's: first those that must be absent, then those that are deleted
-- ARGV[1] member
-- ARGV[2] absent, how many keys must be absent
-- returns 1 if it is gone, else 0

local absent = tonumber(ARGV[2])
for index = 2, 1 + absent do
  if redis.call('EXISTS', KEYS[index]) == 1 then
    return 0
  end
end
for index = 2 + absent, #KEYS do
  redis.call('UNLINK', KEYS[index])
end
redis.call('SREM', KEYS[1], ARGV[1])
return 1
