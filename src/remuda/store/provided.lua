-- Does some commands together, provided that a key is there: what belongs to it cannot outlive it.
-- KEYS[1] {provided}
-- KEYS[2..] {touched}
-- ARGV[1..] commands, each as the number of its parts and then these
-- returns the replies, or nil when the key is not there

if redis.call('EXISTS', KEYS[1]) == 0 then
  return nil
end
local replies, index = {}, 1
while index <= #ARGV do
  local last = index + tonumber(ARGV[index])
  replies[#replies + 1] = redis.call(unpack(ARGV, index + 1, last))
  index = last + 1
end
return replies
